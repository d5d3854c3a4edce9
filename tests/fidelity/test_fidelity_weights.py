"""Weights and buffers: every public way of changing one must show in the very next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import paddle
import pytest
from differential import OneLinear, Scenarios, Way, check, follow, layer_of, numbers

nn = paddle.nn
optim = paddle.optimizer
scenarios = Scenarios()


def plain() -> OneLinear:
    """x -> fc(x)."""
    return layer_of(lambda self, x: self.fc(x))


def weight_scenario(change: Callable[[Any], Any]) -> Callable[[Way], None]:
    """A scenario: heat, apply ``change(layer)``, look."""

    def scenario(way: Way) -> None:
        follow(way, plain(), change, change)

    return scenario


def _moving_average(layer: Any) -> None:
    for parameter in layer.parameters():
        parameter.set_value(parameter * 0.9 + paddle.ones_like(parameter) * 0.1)


def _set_through_vector(layer: Any) -> None:
    vector = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(vector * 2, layer.parameters())


def _load_state(layer: Any) -> None:
    layer.set_state_dict({name: value * 2 for name, value in layer.state_dict().items()})


def _set_data(layer: Any) -> None:
    layer.fc.weight.data = layer.fc.weight * 2 + 1


def _setitem(layer: Any) -> None:
    layer.fc.weight[0, 1] = layer.fc.weight[0, 1] + 3.0


def _share(layer: Any) -> None:
    (layer.fc.weight * 2)._share_underline_tensor_to(layer.fc.weight)


def _share_buffer(layer: Any) -> None:
    (layer.fc.weight * 2)._share_buffer_to(layer.fc.weight)


def _raw_optimizer_op(layer: Any) -> None:
    rate, gradient = paddle.to_tensor(0.1), paddle.ones([4, 4])
    paddle._C_ops.sgd_(layer.fc.weight, rate, gradient, None, False)


def _kaiming(layer: Any) -> None:
    nn.initializer.KaimingNormal()(layer.fc.weight)


DOUBLED: dict[str, Callable[[Any], Any]] = {
    "set_value": lambda n: n.fc.weight.set_value(n.fc.weight * 2),
    "set_value_numpy": lambda n: n.fc.weight.set_value(n.fc.weight.numpy() * 2),
    "copy_": lambda n: n.fc.weight.copy_(n.fc.weight * 2, True),
    "set_state_dict": _load_state,
    "load_dict": lambda n: n.load_dict({k: v * 2 for k, v in n.state_dict().items()}),
    "state_dict_entry": lambda n: n.state_dict()["fc.weight"].set_value(n.fc.weight * 2),
    "assign_output": lambda n: paddle.assign(n.fc.weight * 2, output=n.fc.weight),
    "add_": lambda n: n.fc.weight.add_(n.fc.weight),
    "scale_": lambda n: n.fc.weight.scale_(2.0),
    "fill_": lambda n: n.fc.weight.fill_(float(n.fc.weight.sum()) + 1),
    "zero_": lambda n: n.fc.bias.zero_() + n.fc.weight.zero_(),
    "uniform_": lambda n: n.fc.weight.uniform_(),
    "setitem": _setitem,
    "get_tensor_set": lambda n: n.fc.weight.get_tensor().set(
        n.fc.weight.numpy() * 2, paddle.CPUPlace()
    ),
    "value_get_tensor_set": lambda n: (
        n.fc.weight.value().get_tensor().set(n.fc.weight.numpy() * 2, paddle.CPUPlace())
    ),
    "initializer_constant": lambda n: nn.initializer.Constant(float(n.fc.weight.sum()))(
        n.fc.weight
    ),
    "initializer_assign": lambda n: nn.initializer.Assign(n.fc.weight.numpy() * 2)(n.fc.weight),
    "initializer_normal": lambda n: nn.initializer.Normal()(n.fc.weight),
    "initializer_kaiming": _kaiming,
    "moving_average": _moving_average,
    "parameters_vector": _set_through_vector,
    "data_setter": _set_data,
    "data_set_value": lambda n: n.fc.weight.data.set_value(n.fc.weight * 2),
    "data_copy_": lambda n: n.fc.weight.data.copy_(n.fc.weight * 2, True),
    "data_add_": lambda n: n.fc.weight.data.add_(n.fc.weight),
    "detach_set_value": lambda n: n.fc.weight.detach().set_value(n.fc.weight * 2),
    "detach_copy_": lambda n: n.fc.weight.detach().copy_(n.fc.weight * 2, True),
    "detach_scale_": lambda n: n.fc.weight.detach().scale_(2.0),
    "view_set_value": lambda n: n.fc.weight[0].set_value(n.fc.weight[0] * 2 + 1),
    "view_zero_": lambda n: n.fc.weight[int(n.fc.weight.sum()) % 4].fill_(7.0),
    "reshaped_view": lambda n: n.fc.weight.reshape([-1]).add_(paddle.ones([16])),
    "share_underline": _share,
    "share_buffer": _share_buffer,
    "raw_optimizer_op": _raw_optimizer_op,
    "apply": lambda n: n.apply(
        lambda part: part.weight.set_value(part.weight * 2) if hasattr(part, "weight") else None
    ),
}


@pytest.mark.parametrize("name", DOUBLED)
def test_weight_changed(name: str) -> None:
    check(weight_scenario(DOUBLED[name]))


def _closure_step(optimizer: Any, layer: Any) -> None:
    def closure() -> Any:
        optimizer.clear_grad()
        loss = layer.fc(numbers(8, 4)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def _loss(layer: Any) -> Any:
    return layer.fc(numbers(8, 4, seed=5)).square().mean()


OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "SGD": lambda ps: optim.SGD(0.1, parameters=ps),
    "SGD_groups": lambda ps: optim.SGD(0.1, parameters=[{"params": ps, "learning_rate": 0.5}]),
    "SGD_multi_precision": lambda ps: optim.SGD(0.1, parameters=ps, multi_precision=True),
    "Momentum": lambda ps: optim.Momentum(0.1, parameters=ps),
    "Momentum_multi_tensor": lambda ps: optim.Momentum(0.1, parameters=ps, use_multi_tensor=True),
    "Adam": lambda ps: optim.Adam(0.1, parameters=ps),
    "Adam_multi_tensor": lambda ps: optim.Adam(0.1, parameters=ps, use_multi_tensor=True),
    "Adam_clip": lambda ps: optim.Adam(0.1, parameters=ps, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
    "AdamW": lambda ps: optim.AdamW(0.1, parameters=ps),
    "Adamax": lambda ps: optim.Adamax(0.1, parameters=ps),
    "Adagrad": lambda ps: optim.Adagrad(0.1, parameters=ps),
    "Adadelta": lambda ps: optim.Adadelta(0.1, parameters=ps),
    "RMSProp": lambda ps: optim.RMSProp(0.1, parameters=ps),
    "Lamb": lambda ps: optim.Lamb(0.1, parameters=ps),
    "NAdam": lambda ps: optim.NAdam(0.1, parameters=ps),
    "RAdam": lambda ps: optim.RAdam(0.1, parameters=ps),
    "ASGD": lambda ps: optim.ASGD(0.1, batch_num=1, parameters=ps),
    "Rprop": lambda ps: optim.Rprop(0.01, parameters=ps, learning_rate_range=(0.001, 1.0)),
    "LookAhead": lambda ps: paddle.incubate.LookAhead(optim.SGD(0.1, parameters=ps), k=1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step(name: str) -> None:
    def scenario(way: Way) -> None:
        layer = plain()
        optimizer = OPTIMIZERS[name](layer.parameters())

        def step(layer: Any) -> None:
            with paddle.enable_grad():
                _loss(layer).backward()
            optimizer.step()
            optimizer.clear_grad()

        follow(way, layer, step, step)

    check(scenario)


@scenarios()
def minimize(way: Way) -> None:
    layer = plain()
    optimizer = optim.Adam(0.1, parameters=layer.parameters())

    def step(layer: Any) -> None:
        with paddle.enable_grad():
            loss = _loss(layer)
            loss.backward()
        optimizer.minimize(loss)
        layer.clear_gradients()

    follow(way, layer, step, step)


@scenarios()
def lbfgs(way: Way) -> None:
    layer = plain()
    optimizer = optim.LBFGS(0.1, max_iter=2, parameters=layer.parameters())

    def step(layer: Any) -> None:
        with paddle.enable_grad():
            _closure_step(optimizer, layer)

    follow(way, layer, step, step)


@scenarios()
def grad_scaler(way: Way) -> None:
    layer = plain()
    optimizer = optim.SGD(0.1, parameters=layer.parameters())
    scaler = paddle.amp.GradScaler(enable=False)

    def step(layer: Any) -> None:
        with paddle.enable_grad():
            scaler.scale(_loss(layer)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()

    follow(way, layer, step)


@scenarios()
def model_average_applied_and_restored(way: Way) -> None:
    layer = plain()
    optimizer = optim.SGD(0.5, parameters=layer.parameters())
    average = paddle.incubate.ModelAverage(
        0.15, parameters=layer.parameters(), min_average_window=2, max_average_window=10
    )

    def step(layer: Any) -> None:
        with paddle.enable_grad():
            _loss(layer).backward()
        optimizer.step()
        average.step()
        optimizer.clear_grad()

    follow(
        way,
        layer,
        step,
        step,
        lambda _: average.apply(need_restore=False).__enter__(),
        lambda _: average.restore(),
    )


class HandMadeOptimizer(optim.Optimizer):
    """An optimizer whose ``step`` is the user's own."""

    def step(self) -> None:
        for parameter in self._parameter_list:
            with paddle.no_grad():
                parameter.subtract_(parameter.grad * 0.1)


@scenarios()
def optimizer_of_the_users_own(way: Way) -> None:
    layer = plain()
    optimizer = HandMadeOptimizer(0.1, parameters=layer.parameters())

    def step(layer: Any) -> None:
        with paddle.enable_grad():
            _loss(layer).backward()
        optimizer.step()
        layer.clear_gradients()

    follow(way, layer, step, step)


@scenarios()
def handle_taken_before_compiling(way: Way) -> None:
    layer = plain()
    handle = layer.fc.weight.get_tensor()
    follow(way, layer, lambda n: handle.set(n.fc.weight.numpy() * 2, paddle.CPUPlace()))


@scenarios()
def dtype_of_the_layer_changed(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x.astype(self.fc.weight.dtype)))
    follow(way, layer, lambda n: n.to(dtype="float64"), lambda n: n.to(dtype="float32"))


@scenarios()
def buffer_changed(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) + self.shift)
    layer.register_buffer("shift", paddle.zeros([4]))
    follow(
        way,
        layer,
        lambda n: n.shift.add_(paddle.ones([4])),
        lambda n: n.shift.set_value(paddle.full([4], 5.0)),
        lambda n: setattr(n, "shift", paddle.full([4], 8.0)),
        lambda n: n.register_buffer("shift", paddle.full([4], 9.0)),
    )


@scenarios()
def tensors_in_plain_containers(way: Way) -> None:
    layer = layer_of(
        lambda self, x: paddle.add(
            paddle.add(paddle.add(self.fc(x), self.table["a"]), self.rows[0]), self.pair[1]
        ),
        table={"a": paddle.full([4], 2.0)},
        rows=[paddle.ones([4])],
        pair=(1, paddle.ones([4])),
    )
    follow(
        way,
        layer,
        lambda n: n.table["a"].set_value(paddle.full([4], 3.0)),
        lambda n: n.table.update(a=paddle.full([4], 4.0)),
        lambda n: n.rows.__setitem__(0, paddle.full([4], 5.0)),
        lambda n: n.pair[1].zero_(),
    )


@scenarios()
def tied_weights(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        return paddle.matmul(self.fc(x), self.fc.weight, transpose_y=True)

    follow(way, layer_of(forward), DOUBLED["set_value"], DOUBLED["setitem"])


@scenarios(compiled=None)
def weight_norm(way: Way) -> None:
    layer = plain()
    layer.fc = nn.utils.weight_norm(layer.fc)
    follow(
        way,
        layer,
        lambda n: n.fc.weight_g.set_value(n.fc.weight_g * 2),
        lambda n: n.fc.weight_v.set_value(numbers(4, 4, seed=8)),
        lambda n: nn.utils.remove_weight_norm(n.fc),
    )


@scenarios(compiled=None)
def weight_norm_added_when_hot(way: Way) -> None:
    follow(
        way,
        plain(),
        lambda n: nn.utils.weight_norm(n.fc),
        lambda n: n.fc.weight_g.set_value(n.fc.weight_g * 2),
        lambda n: nn.utils.remove_weight_norm(n.fc),
    )


@scenarios(compiled=None)
def spectral_norm(way: Way) -> None:
    layer = plain()
    layer.fc = nn.utils.spectral_norm(layer.fc)
    follow(way, layer, lambda n: n.fc.weight_orig.set_value(numbers(4, 4, seed=8)))


@scenarios(compiled=False, refused="cannot be traced")
def number_taken_from_a_buffer(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * int(self.k))
    layer.register_buffer("k", paddle.to_tensor(3))
    follow(way, layer, lambda n: n.k.set_value(paddle.to_tensor(5)), lambda n: n.k.add_(n.k))


@scenarios(compiled=False, refused="cannot be traced")
def branch_on_a_buffer(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) * 2 if self.flag else self.fc(x)

    layer = layer_of(forward)
    layer.register_buffer("flag", paddle.to_tensor(True))
    follow(way, layer, lambda n: n.flag.set_value(paddle.to_tensor(False)))


def batch_norm_layer() -> Any:
    layer = layer_of(lambda self, x: self.bn(self.fc(x)), bn=nn.BatchNorm1D(4))
    layer(numbers(2, 4))  # its first call writes attributes of its own
    return layer


@scenarios()
def statistics_trained_without_gradients(way: Way) -> None:
    def train_one(layer: Any) -> None:
        layer.train()
        layer(numbers(8, 4, seed=6))
        layer.eval()

    follow(way, batch_norm_layer(), train_one, train_one)


@scenarios()
def statistics_trained_with_gradients(way: Way) -> None:
    def train_one(layer: Any) -> None:
        layer.train()
        with paddle.enable_grad():
            layer(numbers(8, 4, seed=6)).sum().backward()
        layer.clear_gradients()
        layer.eval()

    follow(way, batch_norm_layer(), train_one, train_one)


@scenarios()
def statistics_trained_by_a_direct_call(way: Way) -> None:
    def train_one(layer: Any) -> None:
        layer.bn.train()
        layer.bn(numbers(8, 4, seed=6))
        layer.bn.eval()

    follow(way, batch_norm_layer(), train_one, train_one)


@scenarios()
def statistics_written_by_the_functional_form(way: Way) -> None:
    def train_one(layer: Any) -> None:
        bn = layer.bn
        nn.functional.batch_norm(
            numbers(8, 4, seed=6), bn._mean, bn._variance, bn.weight, bn.bias, training=True
        )

    follow(way, batch_norm_layer(), train_one, train_one)


@scenarios()
def statistics_set(way: Way) -> None:
    follow(
        way,
        batch_norm_layer(),
        lambda n: n.bn._mean.set_value(paddle.ones([4])),
        lambda n: n.bn.weight.set_value(paddle.full([4], 2.0)),
    )


def _while_uninstalled(way: Way, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    import paddle_fluid_boost as pfb

    def changed(layer: Any) -> None:
        if way.name == "eager":
            change(layer)
            return
        pfb.uninstall()
        change(layer)
        pfb.install(auto=way.name == "auto")

    return changed


@scenarios()
def weight_changed_while_uninstalled(way: Way) -> None:
    follow(way, plain(), _while_uninstalled(way, DOUBLED["set_value"]))


@scenarios()
def attribute_changed_while_uninstalled(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.scale, scale=2.0)
    follow(way, layer, _while_uninstalled(way, lambda n: setattr(n, "scale", 5.0)))


@pytest.mark.parametrize(("scenario", "expected"), scenarios.params)
def test_weights_are_fresh(scenario: Any, expected: dict[str, Any]) -> None:
    check(scenario, **expected)


def test_a_view_of_numpy_is_a_documented_limit() -> None:
    """Writing through ``numpy.from_dlpack(parameter)`` bypasses Paddle altogether."""
    layer = plain()
    view = numpy.from_dlpack(layer.fc.weight.detach())
    assert numpy.shares_memory(view, numpy.from_dlpack(layer.fc.weight.detach()))
