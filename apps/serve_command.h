// `lumen serve`: parse, wire, run. Main thread. Errors: exit status 1 and a line on stderr.
#pragma once

namespace CLI {
class App;
}

// `exit_status` is set when the command has run.
void add_serve_command(CLI::App& app, int& exit_status);
