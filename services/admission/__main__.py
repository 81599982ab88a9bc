"""`python -m services.admission`."""

from services.admission.app import SERVICE, build
from services.admission.settings import AdmissionSettings
from shared.runtime.service import main

if __name__ == "__main__":
    main(SERVICE, AdmissionSettings, build)
