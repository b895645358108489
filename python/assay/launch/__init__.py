"""Starting engines: which executables there are, where their ranks go, and who ends them."""
