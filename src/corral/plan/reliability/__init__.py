"""corral plan reliability: failures, save intervals and spares of a long run."""
