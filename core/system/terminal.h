// Detection of terminals.
#pragma once

namespace tapeformer {

// Returns whether a file descriptor is the controlling terminal of this process. In contrast to isatty(),
// returns false for the pseudo-terminal through which mpirun reads the standard output of process 0: mpirun
// can write the bytes to a file.
bool is_controlling_terminal(int descriptor);

}  // namespace tapeformer
