"""`python -m services.visibility`."""

from services.visibility.settings import VisibilitySettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("visibility", VisibilitySettings)
