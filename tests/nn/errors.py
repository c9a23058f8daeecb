"""What a message has to hold: argument, what came, what was expected, what to do."""

import re

import pytest


def assert_raises(kind, call, *parts):
    """The error begins with the first part and holds the others, in this order."""
    with pytest.raises(kind) as caught:
        call()
    message = " ".join(str(caught.value).split())
    assert message.startswith(parts[0]), message
    assert re.search(".*".join(map(re.escape, parts)), message), message
