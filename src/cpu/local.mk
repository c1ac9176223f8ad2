# CPU backend: one library per ISA level.
