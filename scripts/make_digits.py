"""Write src/fedge/data/digits.npz from scikit-learn's copy of the UCI optical digits.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0. The 1,797 images are the test part of
that data set.

    python scripts/make_digits.py      # needs scikit-learn, which is not a dependency of the package
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

ATTRIBUTION = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, "
    "UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49. "
    "Licence: CC BY 4.0, https://creativecommons.org/licenses/by/4.0/. "
    "Changed: the 1,797 images of the test part only, stored as bytes."
)
TARGET = Path(__file__).parents[1] / "src/fedge/data/digits.npz"


def main() -> None:
    digits = load_digits()
    np.savez_compressed(
        TARGET,
        images=digits.images.astype(np.uint8),
        labels=digits.target.astype(np.uint8),
        attribution=np.array(ATTRIBUTION),
    )
    print(f"{TARGET}: {len(digits.target)} images, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
