# Unit tests (cmocka) and scripts. Every test exits 0, 1 or 77 (skipped).
