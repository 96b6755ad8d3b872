// Downloading of a file with libcurl, where the build has it. No state; any thread.
#pragma once

#include <string>

#include "core/files.h"

namespace tapeformer {

// Returns whether this build can download at all.
bool can_download();

// Appends the contents behind an https:// URL to `file`. Returns false if the server has no such file. Only
// https is spoken, also after redirections, and the server's certificate is checked. http:// is taken for
// this machine alone (localhost, 127.0.0.1, [::1]). Honours the usual proxy variables.
//
// Throws ConfigError for any other address; DataError with the URL and the reason for every other failure,
// for more than `max_bytes`, for a transfer that ends early and for a build without libcurl; FileError if
// `file` cannot be written.
bool download(const std::string& url, File& file, int64_t max_bytes);

}  // namespace tapeformer
