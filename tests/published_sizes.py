"""Published sizes of uploads that are sparse and coded: Mills (2023), without the overhead of a stream."""

from collections.abc import Iterable

from fedge.core.codecs.golomb import bits_per_index


def bits_per_value(sparsity: float, moments: bool) -> float:
    """Return the published number of bits per value of a tensor, with or without its two moments."""
    return (1 - sparsity) * ((24 if moments else 8) + bits_per_index(sparsity))


def formula_bits(tensors: Iterable[tuple[int, float]], moments: bool) -> float:
    """Return the published size, in bits, of a CE-FedAvg upload, from the (size, sparsity) of each tensor.

    With moments, a stream needs 64 bits more per tensor, because each ExpQ sends two bounds and not one base.
    """
    header_bits = 224 if moments else 160
    return sum(header_bits + bits_per_value(sparsity, moments) * size for size, sparsity in tensors)
