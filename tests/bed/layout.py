"""Where everything in a bed is: addresses, folders, and what the kubelet, containerd and the network plugin are told.

Pure. In: the bed's folder, a node's number and name. Out: file texts and command lines.

    10.88.0.0/16   one bridge: the nodes are 10.88.0.1, .2, …; the pods of node N are in 10.88.N.0/24
    10.96.0.1:443  the API server, at the very address of the Service `kubernetes`: no kube-proxy is needed for it
    10.88.0.1:53   names; a Service's name is answered with the addresses of its pods, so that nothing translates
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.bed.images import PAUSE

__all__ = ["ADDRESS", "ADMIN_TOKEN", "API", "BRIDGE", "DOMAIN", "HIDDEN", "SERVICES", "Node", "kubeconfig", "tokens"]

BRIDGE, ADDRESS, API = "gpubus0", "10.88.0.1", "10.96.0.1"
SERVICES, DOMAIN = "10.96.0.0/16", "cluster.local"
ADMIN_TOKEN = "admin-token"
KUBELET_PORT = 10250
HIDDEN = (
    "/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/lib/gpubus", "/var/log/containers", "/var/log/pods",
)  # fmt: skip
"""Paths compiled into the programs, or mounted from the host by a pod: each node has its own in their place."""


def kubeconfig(authority: Path, token: str) -> str:
    """For anybody inside the bed's network. JSON is YAML."""
    cluster = {"server": f"https://{API}", "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": "bed", "user": {"token": token}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed"}}],
            "current-context": "bed",
        }
    )


def tokens(nodes: list[str]) -> str:
    """The API server's list of who is who."""
    people = [f'{ADMIN_TOKEN},admin,admin,"system:masters"', "scheduler-token,system:kube-scheduler,scheduler"]
    return "\n".join([*people, *(f'{node}-token,system:node:{node},{node},"system:nodes"' for node in nodes)]) + "\n"


class Node:
    """One node: a kubelet and a containerd that see one set of mounts."""

    def __init__(self, folder: Path, number: int, name: str, *, group: str, programs: Path) -> None:
        self.name, self.number = name, number
        self.folder = folder / name
        self.address = f"10.88.0.{number}"
        self.group = f"/{group}/{name}"
        self._programs = programs
        self.socket = self.folder / "ctd" / "containerd.sock"

    def write(self) -> None:
        """Its folders and configuration files."""
        for place in ("kubelet", "ctd", "net.d", *(f"hidden{path}" for path in HIDDEN)):
            (self.folder / place).mkdir(parents=True)
        (self.folder / "containerd.toml").write_text(self._containerd(), encoding="utf-8")
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet()), encoding="utf-8")
        (self.folder / "net.d" / "10-bed.conflist").write_text(json.dumps(self._network()), encoding="utf-8")

    def containerd(self) -> list[str]:
        """Its command line, in a mount namespace of its own."""
        hide = " && ".join(f"mount --bind {self.folder}/hidden{path} {path}" for path in HIDDEN)
        run = f'{hide} && exec "$0" "$@"'
        binary = str(self._programs / "containerd")
        mounts = ["unshare", "--mount", "--propagation", "private", "sh", "-c", run]
        return [*mounts, binary, "-c", str(self.folder / "containerd.toml")]

    def kubelet(self, containerd_pid: int) -> list[str]:
        """Its command line, in containerd's mount namespace; that starts in /, so all paths are whole."""
        inside = ["nsenter", "--mount", "-t", str(containerd_pid), "--"]
        flags = {
            "config": self.folder / "kubelet.json",
            "kubeconfig": self.folder / "kubeconfig",
            "root-dir": self.folder / "kubelet",
            "cert-dir": self.folder / "kubelet" / "pki",
            "hostname-override": self.name,
            "node-ip": self.address,
        }
        return [*inside, str(self._programs / "kubelet"), *(f"--{name}={value}" for name, value in flags.items())]

    def ctr(self, *arguments: str | Path) -> list[str | Path]:
        """A call of containerd's own client, in the namespace that the kubelet uses."""
        return [self._programs / "ctr", "-a", str(self.socket), "-n", "k8s.io", *arguments]

    def _network(self) -> dict[str, object]:
        pods = {
            "subnet": "10.88.0.0/16",
            "rangeStart": f"10.88.{self.number}.10",
            "rangeEnd": f"10.88.{self.number}.250",
        }
        ranges = [[{**pods, "gateway": ADDRESS}]]
        ipam = {"type": "host-local", "dataDir": str(self.folder / "ipam"), "ranges": ranges}
        bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": False, "ipMasq": False, "hairpinMode": True}
        plugin = {**bridge, "ipam": {**ipam, "routes": [{"dst": "0.0.0.0/0"}]}}
        return {"cniVersion": "1.0.0", "name": "bed", "plugins": [plugin]}

    def _containerd(self) -> str:
        return f"""\
version = 3
root = "{self.folder}/ctd/root"
state = "{self.folder}/ctd/state"
oom_score = 0
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/ctd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  # Without CAP_SYS_RESOURCE runc cannot lower a process's OOM score, and says "can't get final child's PID".
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{self._programs}"]
    conf_dir = "{self.folder}/net.d"
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{self._programs}/runc"
        SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
"""

    def _kubelet(self) -> dict[str, object]:
        signals = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "pid.available")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": True,
            "cgroupRoot": self.group,
            "enforceNodeAllocatable": ["pods"],
            "address": self.address,
            "port": KUBELET_PORT,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "podLogsDir": str(self.folder / "podlogs"),
            "volumePluginDir": str(self.folder / "kubelet" / "volplugins"),
            "clusterDNS": [ADDRESS],
            "clusterDomain": DOMAIN,
            "resolvConf": "",
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": dict.fromkeys((*signals, "imagefs.inodesFree"), "0%"),
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            "syncFrequency": "5s",
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
        }
