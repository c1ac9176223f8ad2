# Scripts for users; part of the distribution.
EXTRA_DIST += scripts/check scripts/performance scripts/quickstart scripts/scaling scripts/setup.sh scripts/speed.sh tests/lsan.supp
