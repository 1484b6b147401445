"""The words of Corral: values, checked when made. Standard library only; no I/O, no
clock."""
