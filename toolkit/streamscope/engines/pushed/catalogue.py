"""The catalogue: what was pushed recently, traced and bound, so that pushing it again only launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamscope.engines.pushed.applications import Application, Part
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.recent import Recent
from streamscope.engines.pushed.templates import Template, fitted, template_key, trace
from streamscope.engines.pushed.variable import VariableState

Key = tuple[Any, ...]

TEMPLATES = 256
"""Traces that are kept, at least."""
APPLICATIONS = 1024
"""Applications to variables that are kept bound, at least."""


class TracingError(Exception):
    """The pushed function raised while it was traced; ``__cause__`` is what it raised."""


class Catalogue:
    """Templates and applications of one engine.

    Keys hold the numbers of variables, so that a variable can go while applications of it are kept; `forget` drops those.

    Attributes
    ----------
    misses : int
        Applications that were not kept, and so were made.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.misses = 0
        self._issuer = issuer
        self._templates: Recent[Key, Template] = Recent(TEMPLATES)
        self._applications: Recent[Key, Application] = Recent(APPLICATIONS, _unlink)
        self.get = self._applications.get
        """Return the application that is kept for a key, or None; the caller holds the lock."""

    def application(
        self,
        key: Key | None,
        name: str,
        template: Template,
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        *,
        priority: bool,
    ) -> Application:
        """Make an application and, with a key, keep it; the caller holds the lock."""
        self.misses += 1
        part = Part(name, template, tuple(dict.fromkeys(arguments)), writes)
        estimate_ns = sum(self._issuer.device.estimate_ns(launch) for launch in template.launches)
        lane = self._issuer.lane_for(template.kind, priority=priority)
        application = Application([part], priority=priority, lines=[None], estimate_ns=estimate_ns, lane=lane)
        if key is not None:
            self._applications.put(key, application)
            for state in application.states:
                state.keys.add(key)
        return application

    def template(
        self,
        function: Callable[..., Any],
        name: str,
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        attributes: Mapping[str, Any],
    ) -> Template:
        """Return the template of a function for variables like these, traced if it is not kept, with no lock held.

        Raises
        ------
        TracingError
        ProgramError
        """
        key = template_key(function, arguments, writes, attributes)
        with self._issuer.lock:
            found = self._templates.get(key)
        if found is None:
            try:
                program = trace(function, name, arguments, writes, attributes)
            except Exception as error:
                raise TracingError from error
            found = fitted(program, tuple(dict.fromkeys(arguments)), writes)
            with self._issuer.lock:
                self._templates.put(key, found)
        return found

    def forget(self, state: VariableState) -> None:
        """Drop all that is kept of a variable; the caller holds the lock."""
        for key in list(state.keys):
            application = self._applications.get(key)
            self._applications.pop(key)
            if application is not None:
                _unlink(key, application)

    def clear(self) -> None:
        """Drop everything."""
        self._applications.clear()
        self._templates.clear()

    def __len__(self) -> int:
        return len(self._applications) + len(self._templates)


def _unlink(key: Key, application: Application) -> None:
    for state in application.states:
        state.keys.discard(key)
