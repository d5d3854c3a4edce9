"""``import paddle_fluid_boost.auto`` installs the plugin: the whole change a script needs."""

from __future__ import annotations

from . import install

install()
