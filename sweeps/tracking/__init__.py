"""MLflow and other trackers as mirrors of a sweep's record; the only door to MLflow.

base            what a sweep needs of a tracker: the protocol and its values
memory          a tracker in memory, the test double
mlflow_tracker  MLflow as a tracker
translate       a record in the words of a tracker
views           the saved views, and links that open them
mirror          ships a record to a tracker, each step exactly once
store           where runs are kept, whether that works, how to look at it
"""

from sweeps.tracking.base import Tracker, TrackingError
from sweeps.tracking.memory import MemoryTracker
from sweeps.tracking.mirror import Mirror, MirrorStatus, Pace, Place, mirrored_at, sync
from sweeps.tracking.mlflow_tracker import MlflowTracker
from sweeps.tracking.store import check_store, mlflow_command, store_uri, ui_address
from sweeps.tracking.views import saved_views, view_link

__all__ = [
    "MemoryTracker",
    "Mirror",
    "MirrorStatus",
    "MlflowTracker",
    "Pace",
    "Place",
    "Tracker",
    "TrackingError",
    "check_store",
    "mirrored_at",
    "mlflow_command",
    "saved_views",
    "store_uri",
    "sync",
    "ui_address",
    "view_link",
]
