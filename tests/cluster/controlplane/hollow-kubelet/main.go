// Command hollow-kubelet is a real kubelet on a fake container runtime: kubemark's hollow node, with four differences.
//   - It listens on 127.0.0.1 only.
//   - It writes below a given folder only.
//   - The size of its machine is a flag (kubemark's is fixed at 1 cpu and 3840Mi).
//   - A container ends with exit code 0 after N seconds when its command is ["sleep","N"] or its pod carries the
//     annotation gpubus.dev/simulated-run-s: "N" (kubemark's never end by themselves).
package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

const runSecondsAnnotation = "gpubus.dev/simulated-run-s"

// machine is kubemark's fake cadvisor with a size that was asked for.
type machine struct {
	cadvisortest.Fake
	cpus      int
	memoryMiB uint64
}

func (m *machine) MachineInfo(logger klog.Logger) (*cadvisorapi.MachineInfo, error) {
	info, err := m.Fake.MachineInfo(logger)
	if err == nil {
		info.NumCores, info.MemoryCapacity = m.cpus, m.memoryMiB<<20
	}
	return info, err
}

// endingRuntime stops containers that are asked to run for a while; everything else is the fake runtime's.
type endingRuntime struct {
	internalapi.RuntimeService
	mu   sync.Mutex
	runs map[string]time.Duration
}

func (r *endingRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := r.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
	if err == nil {
		if runs, ok := runTime(config.Command, sandboxConfig.GetAnnotations()[runSecondsAnnotation]); ok {
			r.mu.Lock()
			r.runs[id] = runs
			r.mu.Unlock()
		}
	}
	return id, err
}

func (r *endingRuntime) StartContainer(ctx context.Context, id string) error {
	err := r.RuntimeService.StartContainer(ctx, id)
	r.mu.Lock()
	runs, ends := r.runs[id]
	r.mu.Unlock()
	if err == nil && ends {
		time.AfterFunc(runs, func() { _ = r.RuntimeService.StopContainer(context.Background(), id, 0) })
	}
	return err
}

// runTime is how long a container runs; false when it runs until it is stopped. The annotation wins over the command.
func runTime(command []string, annotation string) (time.Duration, bool) {
	text := annotation
	if text == "" && len(command) == 2 && command[0] == "sleep" {
		text = command[1]
	}
	seconds, err := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * float64(time.Second)), err == nil && seconds >= 0
}

// pairs reads "a=1,b=2".
func pairs(text string) map[string]string {
	found := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			found[key] = value
		}
	}
	return found
}

func fakeRuntime(ctx context.Context, root string) (*fakeremote.RemoteRuntime, internalapi.RuntimeService) {
	endpoint := "unix://" + filepath.Join(root, "cri.sock")
	runtime := fakeremote.NewFakeRemoteRuntime()
	must(runtime.Start(endpoint))
	service, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(15 * time.Second).Build(ctx)
	must(err)
	return runtime, &endingRuntime{RuntimeService: service, runs: map[string]time.Duration{}}
}

// keepIn moves everything the kubelet writes below root; kubemark puts it in /tmp and leaves it there.
func keepIn(root string, flags *options.KubeletFlags, config *kubeletconfig.KubeletConfiguration) {
	must(os.RemoveAll(flags.RootDirectory))
	flags.RootDirectory = filepath.Join(root, "kubelet")
	config.StaticPodPath, config.PodLogsDir = filepath.Join(root, "static-pods"), filepath.Join(root, "pod-logs")
	for _, folder := range []string{flags.RootDirectory, config.StaticPodPath, config.PodLogsDir} {
		must(os.MkdirAll(folder, 0o755))
	}
}

func must(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}

func main() {
	name := flag.String("name", "", "name of the node")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	root := flag.String("root", "", "folder for everything it writes")
	port := flag.Int("port", 10250, "port of the kubelet's API, on 127.0.0.1")
	cpus := flag.Int("cpus", 1, "cores of the machine")
	memory := flag.Uint64("memory-mib", 3840, "memory of the machine, MiB")
	maxPods := flag.Int("max-pods", 110, "pods at most")
	labels := flag.String("labels", "", "labels of the node: a=1,b=2")
	extended := flag.String("extended-resources", "", "extended resources: nvidia.com/gpu=8")
	qps := flag.Float64("qps", 100, "requests per second to the API server; the burst is twice that")
	flag.Parse()

	ctx := context.Background()
	client, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	client.UserAgent, client.QPS, client.Burst = "hollow-kubelet", float32(*qps), int(2**qps)
	client.ContentType = "application/vnd.kubernetes.protobuf"
	heartbeat := *client
	heartbeat.QPS, heartbeat.Timeout = -1, 10*time.Second

	resources := v1.ResourceList{}
	for key, value := range pairs(*extended) {
		resources[v1.ResourceName(key)] = resource.MustParse(value)
	}
	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: *name, KubeletPort: *port, MaxPods: *maxPods, NodeLabels: pairs(*labels),
	})
	config.Address, config.ReadOnlyPort = "127.0.0.1", 0
	keepIn(*root, flags, config)
	runtime, service := fakeRuntime(ctx, *root)
	defer runtime.Stop()
	kubemark.NewHollowKubelet(
		flags, config, clientset.NewForConfigOrDie(client), clientset.NewForConfigOrDie(&heartbeat),
		&machine{cadvisortest.Fake{NodeName: *name}, *cpus, *memory},
		runtime.ImageService, service, cm.NewStubContainerManagerWithDevicePluginResource(resources),
	).Run(ctx)
}
