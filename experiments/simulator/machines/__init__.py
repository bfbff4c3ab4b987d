"""Owns whole peers on virtual time: machines, event loops, disks and the network; must not know faults or promises."""
