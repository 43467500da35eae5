"""How Streamlit is started: it listens on this machine only, asks nothing, sends nothing, loads
nothing.

Pure, standard library only: `lumen dashboard` reads it before it knows whether Streamlit is there.
The same settings stand in .streamlit/config.toml for `streamlit run dashboard.py`.
"""

from __future__ import annotations

ADDRESS = "127.0.0.1"
PORT = 8501  # Streamlit's own default

OPTIONS: dict[str, str] = {
    "server.address": ADDRESS,
    "server.headless": "true",  # opens no browser
    "server.showEmailPrompt": "false",
    "server.fileWatcherType": "none",
    "server.enableStaticServing": "false",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": ADDRESS,
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "stacktrace",
    "client.showErrorLinks": "false",  # they lead to search engines
    # Both, so that the page follows the browser's choice and the menu can change it.
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#3C9BDC",
}


# Names under which a browser may ask for the page. A stranger's page can make a name of its own
# mean 127.0.0.1 (DNS rebinding) and would then read the files.
HOSTS = ("127.0.0.1", "localhost")


def flags(changes: dict[str, str], proxy_hosts: list[str]) -> list[str]:
    """For `streamlit run`. Flags beat every config.toml and the environment.

    A proxy may pass on the public name as Host, or its own: then the websocket's Origin has it.
    """
    found = [f"--{name}={value}" for name, value in {**OPTIONS, **changes}.items()]
    found += [f"--server.allowedHosts={host}" for host in (*HOSTS, *proxy_hosts)]
    found += [f"--server.corsAllowedOrigins=https://{host}" for host in proxy_hosts]
    return found
