"""Servers that run inside replicas: a small GPT of plain PyTorch, and llama.cpp by its
wheel. They run with the Python of the job, and import nothing else of Corral."""
