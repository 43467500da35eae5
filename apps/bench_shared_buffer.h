// `lumen bench shared-buffer`: many threads reserve, write and commit small records; dense and lane
// mode of SharedBuffer beside a buffer under a mutex. Main thread, starts threads of its own.
// Errors: exit status 2 for arguments, 1 when a byte is not accounted for; a line on stderr.
#pragma once

// argv[0] is the subcommand's name.
int run_bench_shared_buffer(int argc, char** argv);
