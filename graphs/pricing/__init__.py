"""What each op costs on each kind of device, and where it has a kernel."""
