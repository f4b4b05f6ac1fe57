#!/bin/bash
# build.sh - the real servers that the tests of the `cluster` marker talk to, from the Go module proxy:
#   etcd, kube-apiserver, kube-controller-manager, hollow-kubelet, jaeger, and helm, which renders the chart;
# and for the bed of real nodes: kube-scheduler, kubelet, containerd, runc, two network plugins, a pause program.
# They land in ${GPUBUS_TEST_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/gpubus-tests}/bin. A program is built again only when its
# version, its flags, its module's go.mod/go.sum or its own source change: the stamp beside it holds them.
# Cold on two cores: about fifteen minutes, 6 GB of Go build cache and 2.5 GB of modules; warm: seconds.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=${GPUBUS_TEST_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/gpubus-tests}
etcd_version=3.7.3
kubernetes_version=1.37.2
jaeger_version=1.76.0
helm_version=3.22.0
containerd_version=2.3.7
runc_version=1.5.3
plugins_version=1.10.0

die() {
  echo "build.sh: $*" >&2
  exit 1
}

[ "$(uname -s)" = Linux ] || die "the hollow kubelet is Linux only, this is $(uname -s)"
command -v go >/dev/null || die "Go is missing: install Go 1.26 or newer (https://go.dev/dl/) and put it on PATH"
have=$(GOTOOLCHAIN=local go env GOVERSION)
minor=$(sed -n 's/^go1\.\([0-9]*\).*/\1/p' <<<"$have")
[ -n "$minor" ] && [ "$minor" -ge 26 ] || die "Go 1.26 or newer is needed, found $have"

# One set of flags for everything, or Go's build cache shares nothing between the programs.
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="${GOFLAGS:-} -mod=readonly -buildvcs=false"
version=k8s.io/component-base/version
kubernetes_ldflags="-s -w -X $version.gitVersion=v$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=${kubernetes_version:2:2}"

seconds_since() { awk -v a="$1" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }'; }

# What a program is made of: its module's requirements, and its own main where it is ours.
sources() {
  cat "$1/go.mod" "$1/go.sum"
  case $2 in ./*) cat "$1/$2"/*.go ;; esac
}

# build PROGRAM VERSION MODULE-FOLDER PACKAGE LDFLAGS [TAGS]
build() {
  local program=$1 wanted=$2 module=$3 package=$4 ldflags=$5 tags=${6:-} started stamp
  started=$(date +%s%N)
  stamp="$wanted $have $ldflags${tags:+ $tags} $(sources "$module" "$package" | sha256sum | cut -c1-64)"
  if [ -x "$bin/$program" ] && [ "$(cat "$bin/$program.stamp" 2>/dev/null)" = "$stamp" ]; then
    printf '%7s s  %-24s %s (already built)\n' 0.0 "$program" "$wanted"
    return
  fi
  # Renamed into place when whole: a test that starts meanwhile never sees half a program.
  (cd "$module" && go build -trimpath -tags "$tags" -ldflags "$ldflags" -o "$bin/.$program.new" "$package") \
    || die "$program $wanted did not build (the lines above say why)"
  mv "$bin/.$program.new" "$bin/$program"
  echo "$stamp" >"$bin/$program.stamp"
  printf '%7s s  %-24s %s\n' "$(seconds_since "$started")" "$program" "$wanted"
}

# runc as its own module, with one file replaced: its seccomp filter needs a C library that no Go module brings, and
# without it runc refuses every container that names a profile. Ours starts them unfiltered.
build_runc() {
  local source=$root/src/runc wanted="$runc_version $have $(cat "$here/runc/go.sum" "$here"/runc/seccomp/* | sha256sum)"
  if [ -x "$bin/runc" ] && [ "$(cat "$bin/runc.stamp" 2>/dev/null)" = "$wanted" ]; then
    printf '%7s s  %-24s %s (already built)\n' 0.0 runc "$runc_version"
    return
  fi
  local started module
  started=$(date +%s%N)
  (cd "$here/runc" && go mod download github.com/opencontainers/runc) || die "runc was not downloaded"
  module=$(cd "$here/runc" && go list -m -f '{{.Dir}}' github.com/opencontainers/runc)
  rm -rf "$source" && mkdir -p "$root/src" && cp -r "$module" "$source" && chmod -R u+w "$source"
  cp "$here/runc/seccomp/unfiltered.go.txt" "$source/libcontainer/seccomp/seccomp_unsupported.go"
  (cd "$source" && CGO_ENABLED=1 go build -trimpath -tags osusergo,netgo -ldflags "-s -w -extldflags -static" -o "$bin/.runc.new" .) \
    || die "runc $runc_version did not build (it needs a C compiler and a static C library; the lines above say why)"
  mv "$bin/.runc.new" "$bin/runc"
  rm -rf "$source"
  echo "$wanted" >"$bin/runc.stamp"
  printf '%7s s  %-24s %s\n' "$(seconds_since "$started")" runc "$runc_version"
}

mkdir -p "$root/bin" || die "cannot make $root/bin"
root=$(cd "$root" && pwd)
bin=$root/bin
exec 9>"$root/build.lock"
flock 9 # two builds at once would only fight for the same cores

build etcd "$etcd_version" "$here/controlplane" ./etcd "-s -w"
for program in kube-apiserver kube-controller-manager; do
  build "$program" "$kubernetes_version" "$here/controlplane" "k8s.io/kubernetes/cmd/$program" "$kubernetes_ldflags"
done
build hollow-kubelet "$kubernetes_version" "$here/controlplane" ./hollow-kubelet "$kubernetes_ldflags"
build jaeger "$jaeger_version" "$here/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger "-s -w"
build helm "$helm_version" "$here/helm" helm.sh/helm/v3/cmd/helm "-s -w -X helm.sh/helm/v3/internal/version.version=v$helm_version"

for program in kube-scheduler kubelet; do
  build "$program" "$kubernetes_version" "$here/controlplane" "k8s.io/kubernetes/cmd/$program" "$kubernetes_ldflags"
done
containerd=github.com/containerd/containerd/v2
for program in containerd containerd-shim-runc-v2 ctr; do
  build "$program" "$containerd_version" "$here/runtime" "$containerd/cmd/$program" \
    "-s -w -X $containerd/version.Version=v$containerd_version -X $containerd/version.Package=$containerd" \
    urfave_cli_no_docs,osusergo,netgo,static_build,no_btrfs,no_zfs,no_devmapper
done
for plugin in main/bridge ipam/host-local; do
  build "${plugin#*/}" "$plugins_version" "$here/runc" "github.com/containernetworking/plugins/plugins/$plugin" "-s -w"
done
build pause 1 "$here/runc" ./pause "-s -w"
build_runc
echo "programs: $bin"
