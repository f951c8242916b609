"""Live tracking with TensorBoard, MLflow or Weights & Biases, in a separate process that cannot disturb the run.

A run starts `python -m fedge.track` and notifies it through a pipe of each recorded round. The process reads the
records from the run directory like any other reader, so a slow or broken tool costs the run nothing, and one that was
absent for a while catches up.
"""
