# What a network computes: one file per architecture.
