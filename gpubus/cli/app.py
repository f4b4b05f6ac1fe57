"""The command tree: one command a file, imported when it is used."""

from __future__ import annotations

from importlib import metadata

from cyclopts import App

from gpubus.cli.exits import help_text

HELP = """GPU sharing for Kubernetes: publish a pod request, get a slice of a card and the reason why.

Begin with `gpubus demo` (everything on this machine, for a minute) or `gpubus local` (until Ctrl-C).
"""

COMMANDS = {
    "local": ("local:local", "Run everything on this machine, with simulated nodes."),
    "demo": ("demo:demo", "Run everything for a minute under a mixed workload, then audit it."),
    "submit": ("submit:submit", "Ask for a pod on a slice of a card."),
    "withdraw": ("withdraw:withdraw", "Take a request back."),
    "deploy": ("deploy:deploy", "Publish functions and training jobs from files."),
    "scale": ("scale:scale", "Make a function, change how one or a training job scales, or stop all scaling."),
    "delete": ("delete:delete", "Take a function or a training job down."),
    "call": ("call:call", "Call a function and print its answer."),
    "get": ("get:get", "Show requests, cards, nodes, quotas, functions, jobs or limits."),
    "cordon": ("cordon:cordon", "Take a card out of the pool; its pods stay."),
    "uncordon": ("uncordon:uncordon", "Give a card back."),
    "set-quota": ("quota:set_quota", "Say what a namespace may hold."),
    "explain": ("explain:explain", "Tell why a request is where it is, or why it waits."),
    "whatif": ("whatif:whatif", "Ask what other nodes, policies, quotas or requests would change."),
    "watch": ("watch:watch", "Show events as they happen."),
    "top": ("top:top", "Show the cards as bars, live."),
    "trace": ("trace:trace", "Show the span tree of a request."),
    "audit": ("audit:audit", "Compare ledger, Kubernetes and monitors."),
    "decide": ("decide:decide", "Decide again what a commit of the ledger decided."),
    "ledger": ("ledger:ledger", "Save the ledger to a file."),
    "dead-letters": ("deadletters:dead_letters", "Show what could not be understood."),
    "replay": ("replay:replay", "Feed a recorded trace through the same services."),
    "simulate": ("simulate:simulate", "Simulate placement policies on a trace or a generated workload."),
    "simulate-training": ("training:training", "Run the published experiment with elastic training jobs again."),
    "compare": ("compare:compare", "Compare placement policies, pair by pair, on the same arrivals."),
    "pack": ("pack:pack", "Plan slices of time x multiprocessors on cards."),
    "identities": ("identities:identities", "Show who may do what on the bus, or make keys."),
    "settings": ("settings:settings", "Show the effective settings and where they come from."),
}
"""Name, place and summary, in the order of `--help`: start it, use it, ask it, check it."""


def build(chosen: str = "") -> App:
    """The `gpubus` command. The `chosen` one shows its whole docstring in its help, the others their summary."""
    app = App(
        name="gpubus",
        help=HELP,
        version=_version,
        help_format="markdown",
        help_epilogue=f"Exit status:\n\n```\n{help_text()}\n```",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for order, (name, (place, summary)) in enumerate(COMMANDS.items()):
        about = {} if name == chosen else {"help": summary}
        app.command(f"gpubus.cli.{place}", name=name, help_epilogue="", sort_key=order, **about)
    return app


def _version() -> str:
    try:
        return metadata.version("gpubus")
    except metadata.PackageNotFoundError:
        return "not installed"
