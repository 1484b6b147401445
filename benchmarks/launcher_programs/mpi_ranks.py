"""A sum over all ranks of MPI."""

from mpi4py import MPI
from world import report

world = MPI.COMM_WORLD
report(world.rank, world.size, world.allreduce(1))
