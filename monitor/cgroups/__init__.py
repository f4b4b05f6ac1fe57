"""What the kernel charges to each container: paths and files of cgroup v1 and v2, and the reader of both."""
