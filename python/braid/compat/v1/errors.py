"""tf.errors: TensorFlow's names for errors of runs."""

from braid import _braid

OpError = _braid.Error
InvalidArgumentError = _braid.InvalidArgument
FailedPreconditionError = _braid.InvalidArgument
OutOfRangeError = OUT_OF_RANGE = _braid.OutOfRange
DeadlineExceededError = _braid.DeadlineExceeded
CancelledError = _braid.Cancelled
AbortedError = UnavailableError = _braid.Unavailable
ResourceExhaustedError = _braid.OutOfMemory
DataLossError = _braid.DataLoss
InternalError = _braid.Internal
NotFoundError = _braid.InvalidArgument


class UnimplementedError(_braid.Error, NotImplementedError):
    """A name of TensorFlow's that is refused."""

    def __init__(self, node_def, op, message):
        super().__init__(f"{message} is not available")
        self.node_def, self.op, self.message = node_def, op, message


def kind_of(error):
    """The engine's word for an exception type."""
    return error if isinstance(error, str) else error.__name__


def only(what, settings, *harmless):
    """Throws: UnimplementedError for a setting that is not taken and would change the result."""
    for name, value in settings.items():
        if name not in harmless and value is not None and value is not False:
            raise UnimplementedError(None, None, f"{what}({name}=...)")
