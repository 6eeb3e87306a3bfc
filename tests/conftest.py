"""What torch and Ray read from the environment when they are imported."""

import os

from sweeps.environment import prepare_ray

# As in a trial: two threads on two busy cores are ten times slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
prepare_ray()
