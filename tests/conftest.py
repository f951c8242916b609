import torch

torch.set_num_threads(1)  # as in every engine; two threads on two busy cores wait for each other
