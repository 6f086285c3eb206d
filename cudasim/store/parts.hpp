// The files and folders of a device folder, for several uids at once.
//
// Promises: each appears under its name with its final rights, whatever the umask and whoever else makes it
// at the same moment; who comes second uses the first one's. Never: changes what is there already.
#pragma once
#include <sys/types.h>

#include <string>

namespace cudasim {

// For the device folder itself: nobody replaces another user's files in it. Its subfolders are 0777, since
// whoever buries the dead removes files of any uid there.
constexpr mode_t kDeviceFolderMode = 01777;
constexpr mode_t kSubfolderMode = 0777;

// False and one line in `error`.
bool make_folder(const std::string& path, mode_t mode, std::string& error);

// Mode 0666, for reading and writing, close-on-exec; -1 and one line in `error`.
int open_file(const std::string& path, std::string& error);

}  // namespace cudasim
