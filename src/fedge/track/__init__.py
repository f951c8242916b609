"""Live tracking: TensorBoard, MLflow or Weights & Biases beside a run, in a process that cannot disturb it.

A run starts `python -m fedge.track` and tells it through a pipe of each round that it has recorded. The process reads
the records from the run directory, as any other reader, so a tool that is slow, late or broken costs the run nothing,
and one that was absent for a while catches up.
"""
