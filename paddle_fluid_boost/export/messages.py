# ruff: noqa: RUF001 - Chinese punctuation
"""What the export tool says, in English or Chinese by the locale.

Only what every user reads is translated; the text of an error stays in English, so that it can be
searched for.
"""

from __future__ import annotations

import os

_TEXTS: dict[str, tuple[str, str]] = {
    "step.load": ("load the model", "加载模型"),
    "step.reference": ("compute reference results", "计算参考结果"),
    "step.capture": ("capture the program", "捕获计算图"),
    "step.passes": ("apply our passes", "应用图优化"),
    "step.write": ("write the Paddle model", "写出 Paddle 模型"),
    "step.convert": ("convert to ONNX", "转换为 ONNX"),
    "step.simplify": ("infer shapes, simplify, check", "推断形状、化简并检查"),
    "step.native": ("build the native plan", "构建原生执行计划"),
    "step.pack": ("pack the bundle", "打包"),
    "step.mobile": ("convert for mobile", "转换为移动端格式"),
    "step.verify": ("run it in its own runtime and compare", "在目标运行时中运行并比较"),
    "table.target": ("target", "目标"),
    "table.file": ("file", "文件"),
    "table.size": ("size", "大小"),
    "table.ops": ("ops", "算子数"),
    "table.error": ("rel. error (cases)", "相对误差（用例数）"),
    "table.latency": ("latency", "延迟"),
    "warning": ("warning", "警告"),
    "failed": ("FAILED", "失败"),
    "error": ("error", "错误"),
    "written": ("written to {folder} in {seconds:.0f} s", "已写入 {folder}，用时 {seconds:.0f} 秒"),
    "nothing": ("nothing was written", "未写入任何文件"),
    "fixed": (
        "{names} had to be fixed ({why}); what works is: {works}",
        "{names} 必须固定（{why}）；可用的写法：{works}",
    ),
}


def language() -> str:
    """``"zh"`` where the locale's language is Chinese, else ``"en"``."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def say(key: str, **values: object) -> str:
    """The text of ``key`` in the user's language."""
    english, chinese = _TEXTS[key]
    return (chinese if language() == "zh" else english).format(**values)
