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
    "interrupted": ("interrupted", "已中断"),
    "nothing": ("nothing was written", "未写入任何文件"),
    "inspect.kind": ("kind", "类型"),
    "inspect.file": ("file", "文件"),
    "inspect.input": ("input", "输入"),
    "inspect.output": ("output", "输出"),
    "inspect.parameters": ("weights", "权重"),
    "inspect.flops": ("operations of one call", "单次调用的运算量"),
    "inspect.activations": ("least memory beside the weights", "权重以外的最小内存"),
    "inspect.example": ("for inputs of", "对应的输入尺寸"),
    "inspect.ops": ("ops", "算子"),
    "inspect.plan": (
        "native plan for {shapes}, tuned on {machine}: {settings}",
        "{shapes} 的原生执行计划，在 {machine} 上调优：{settings}",
    ),
    "inspect.ort": (
        "ONNX Runtime's own format does not show its ops",
        "ONNX Runtime 的专用格式不显示算子",
    ),
    "inspect.unknown_cost": (
        "operations and memory are not known: {why}",
        "运算量和内存未知：{why}",
    ),
    "compare.case": ("case", "用例"),
    "compare.output": ("output", "输出"),
    "compare.max_abs": ("max. error", "最大误差"),
    "compare.max_rel": ("rel. error", "相对误差"),
    "compare.latency": (
        "one call of the first case: {a} {a_ms:.3g} ms, {b} {b_ms:.3g} ms",
        "第一个用例单次调用：{a} {a_ms:.3g} 毫秒，{b} {b_ms:.3g} 毫秒",
    ),
    "compare.layer": ("intermediate result", "中间结果"),
    "compare.shape": ("shape", "形状"),
    "compare.like": ("most like it", "最接近的结果"),
    "compare.parts": (
        "they part after {after}, at {at}",
        "两者在 {after} 之后、{at} 处开始不同",
    ),
    "compare.same": ("they agree", "两者一致"),
    "compare.differ": ("THEY DIFFER: {why}", "两者不一致：{why}"),
    "compare.fails": ("{path} fails: {why}", "{path} 运行失败：{why}"),
    "completion.missing": (
        "completion needs shtab: pip install 'paddle-fluid-boost[completion]'",
        "命令补全需要 shtab：pip install 'paddle-fluid-boost[completion]'",
    ),
    "extracted": ("unpacked to {folder}: {files}", "已解包到 {folder}：{files}"),
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
