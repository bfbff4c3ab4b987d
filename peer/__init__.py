"""One peer as a process: configuration, identity, command line and the wiring of the other rooms."""
