"""`python -m services.admission`."""

from services.admission.settings import AdmissionSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("admission", AdmissionSettings)
