"""More training programs, as ``training_programs.py`` has them: loss scaling from the first step on,
branches on what a batch holds, optimizers by hand, state that is carried from call to call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value
from torch.nn import functional as F

from tests.autograd.training_programs import (
    CLASSES,
    INPUTS,
    Made,
    adam,
    descent,
    network,
    program,
)


def scaled(first_is_infinite: bool, optimizer_of: Any) -> Made:
    net = network()
    optimizer = optimizer_of(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    factor = {"now": 1e308 if first_is_infinite else 1.0}

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        scaler.scale(loss * factor["now"]).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        factor["now"] = 1.0
        return loss.detach(), norm, scaler.state_dict()

    return step, [net, optimizer]


@program()
def loss_scaling_from_the_first_step_on() -> Made:
    return scaled(False, adam)


@program(whole=False)  # where the first call of all is not as expected, the program is cut
def loss_scaling_of_momentum_whose_first_step_is_skipped() -> Made:
    return scaled(True, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True))


@program()
def a_term_for_the_rows_that_are_masked() -> Made:
    net = network()

    def loss_of(x, y):
        made, mask = net(x), y > 0
        loss = F.cross_entropy(made, y)
        if mask.any():
            loss = loss + made[mask].square().mean()
        return loss

    return descent(net, loss_of)


@program(whole=False)  # nor the first of its specialization, which `len(x) == 5` makes
def a_step_that_a_batch_without_numbers_skips() -> Made:
    net, skipped = network(), [0]
    optimizer = adam(net.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y) * (float("nan") if len(x) == 5 else 1.0)
        if not torch.isfinite(loss):
            skipped[0] += 1
            return None
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [net, optimizer, skipped]


@program()
def signs_of_averages_by_hand() -> Made:
    net, averages = network(), {}

    def step(x, y):
        for p in net.parameters():
            p.grad = None
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        with torch.no_grad():
            for name, p in net.named_parameters():
                if name not in averages:
                    averages[name] = torch.zeros_like(p)
                update = (averages[name] * 0.9 + p.grad * 0.1).sign_()
                p.mul_(1 - 1e-3).add_(update, alpha=-1e-2)
                averages[name].mul_(0.99).add_(p.grad, alpha=0.01)
        return loss.item()

    return step, [net, averages]


@program()
def gradients_of_two_tasks_that_are_turned_apart() -> Made:
    net, heads = network(), nn.ModuleList([nn.Linear(CLASSES, 4), nn.Linear(CLASSES, INPUTS)])
    optimizer = torch.optim.SGD([*net.parameters(), *heads.parameters()], 0.1)

    def step(x, y):
        made, shared = net(x), [*net.parameters()]
        losses = F.cross_entropy(heads[0](made), y), F.mse_loss(heads[1](made), x)
        first, second = (torch.autograd.grad(loss, shared, retain_graph=True) for loss in losses)
        dot = sum((a * b).sum() for a, b in zip(first, second))
        size = sum((b * b).sum() for b in second)
        optimizer.zero_grad()
        sum(losses).backward()
        with torch.no_grad():
            share = torch.where(dot < 0, dot / size, torch.zeros(()))
            for p, b in zip(shared, second):
                p.grad -= share * b
        optimizer.step()
        return dot

    return step, [net, heads, optimizer]


@program()
def a_state_that_is_cut_every_second_turn() -> Made:
    cell, head = nn.LSTMCell(INPUTS, 8), nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)

    def step(x, y):
        state, total = (torch.zeros(1, 8), torch.zeros(1, 8)), 0.0
        for turn in range(4):
            state = cell(x[turn % len(x)][None], state)
            loss = F.cross_entropy(head(state[0]), y[turn % len(y)][None])
            if turn % 2 == 1:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                state = tuple(each.detach() for each in state)
            total += loss.item()
        return total

    return step, [cell, head, optimizer]


@program()
def gradients_that_others_keep() -> Made:
    net, kept = network(), {}

    def step(x, y):
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()
        for name, p in net.named_parameters():
            if name in kept:
                kept[name].mul_(0.5).add_(p.grad)
            else:
                kept[name] = p.grad.clone()
            p.grad = kept[name]
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        return sum(float(p.grad.norm()) for p in net.parameters())

    return step, [net, kept]


@program()
def an_autoencoder_whose_divergence_torch_looks_up() -> Made:
    encoder, decoder = nn.Linear(INPUTS, 4), nn.Linear(2, INPUTS)
    optimizer = adam([*encoder.parameters(), *decoder.parameters()])

    def step(x, y):
        optimizer.zero_grad()
        mean, log = encoder(x).chunk(2, -1)
        found = torch.distributions.Normal(mean, (0.5 * log).exp())
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(log))
        apart = torch.distributions.kl_divergence(found, prior).sum(-1).mean()
        loss = F.mse_loss(decoder(found.rsample()), x) + apart
        loss.backward()
        optimizer.step()
        return loss.detach(), apart.detach()

    return step, [encoder, decoder, optimizer]


@program()
def draws_of_dirichlet_and_beta() -> Made:
    net = network()
    optimizer = adam(net.parameters())

    def step(x, y):
        optimizer.zero_grad()
        weights = F.softplus(net(x)) + 0.1
        shares = torch.distributions.Dirichlet(weights)
        part = torch.distributions.Beta(weights[:, 0], weights[:, 1])
        drawn, other = shares.rsample(), part.rsample()
        loss = (drawn * drawn).mean() + other.mean() - shares.log_prob(drawn.detach()).mean()
        (loss - 0.1 * part.entropy().mean()).backward()
        optimizer.step()
        return loss.detach(), drawn.detach(), other.detach()

    return step, [net, optimizer]


@program()
def functional_steps() -> Made:
    """`torch.func` alone: parameters in, parameters out."""
    net = network()
    parameters = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss_of(given, x, y):
        return F.cross_entropy(functional_call(net, given, (x,)), y)

    def step(x, y):
        slopes, loss = grad_and_value(loss_of)(parameters, x, y)
        for name, p in parameters.items():
            parameters[name] = p - 0.1 * slopes[name]
        return loss

    return step, [parameters]
