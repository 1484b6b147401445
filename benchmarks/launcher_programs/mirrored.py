"""A sum over all replicas of TensorFlow's MultiWorkerMirroredStrategy."""

import tensorflow as tf
from world import report

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver


@tf.function
def total() -> tf.Tensor:
    ones = strategy.run(lambda: tf.constant(1.0))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None)


report(resolver.task_id, strategy.num_replicas_in_sync, float(total()))
