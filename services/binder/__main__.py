"""`python -m services.binder`."""

from services.binder.app import SERVICE, build
from services.binder.settings import BinderSettings
from shared.runtime.service import main

if __name__ == "__main__":
    main(SERVICE, BinderSettings, build)
