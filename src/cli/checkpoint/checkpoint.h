#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "host/peers/messages.h"

// Has the ferryd of this host take checkpoints, and restart programs.
namespace ferry::cli {

// Has the checkpoints of the request encrypted for the certificates in these files. Throws Failure.
void encrypt_to(const std::vector<std::string>& certificates, v1::CheckpointRequest* request);

// The directories of the requests may be relative ones. `json`: prints the report as JSON. `events`: prints how far it
// is as lines of JSON on stderr, with the time, and a last one whose phase is "stored", "restarted" or "failed". SIGINT
// gives it up. Give the exit status; throw Failure.
int checkpoint(v1::CheckpointRequest request, bool json, bool events);
// Takes one now, and then one each time that `interval` has passed since the last one began, without end. Says on
// stderr if one fails, and tries again at its time. Throws Failure: the first one fails, or three do one after the
// other. `json`: prints each report as a line.
int checkpoint_every(v1::CheckpointRequest request, std::chrono::seconds interval, bool json,
                     bool events);
// `key`: the file of a private key, which opens an encrypted checkpoint here: ferryd gets that one's content key only.
// Empty: it is not encrypted.
int restart(v1::RestartRequest request, const std::string& key, bool json, bool events);
// Makes the request one for ferryd, which has another working directory, and gets no private key. Throws Failure.
void complete(v1::RestartRequest* request, const std::string& key);
void print_restart(const v1::RestartReport& report);

// The user of this name, or with this number. Throws Failure.
uid_t user_number(const std::string& user);

}  // namespace ferry::cli
