"""A sum over all processes of JAX."""

import jax
from jax.experimental import multihost_utils
from world import report

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
ones = multihost_utils.process_allgather(jax.numpy.ones(1))
report(jax.process_index(), jax.process_count(), float(ones.sum()))
