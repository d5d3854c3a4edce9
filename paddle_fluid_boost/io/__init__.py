"""Data in and out without copies: ``pfb.io.to_tensor``, ``to_numpy``, ``frame_buffer``.

>>> ring = pfb.io.frame_buffer((1, 3, 1080, 1920))
>>> with ring.acquire() as frame:
...     camera.read_into(frame.array)          # numpy, the same memory as
...     result = net(frame.tensor)             # the tensor: nothing is copied
>>> scores = pfb.io.to_numpy(result)           # a view of the result
>>> pfb.io.copies().count                      # 0
"""

from .bridges import share_input, to_numpy, to_tensor
from .copies import Copies, copies, reset_copies
from .frames import Frame, FrameBuffer, frame_buffer

__all__ = [
    "Copies",
    "Frame",
    "FrameBuffer",
    "copies",
    "frame_buffer",
    "reset_copies",
    "share_input",
    "to_numpy",
    "to_tensor",
]
