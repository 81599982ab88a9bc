"""`python -m services.binder`."""

from services.binder.settings import BinderSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("binder", BinderSettings)
