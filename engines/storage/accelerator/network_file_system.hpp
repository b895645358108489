// File systems that the accelerator leaves to the MPI.
//
// NFS and SMB keep file data in each host's own cache until the file is opened again. A read of
// bytes that another host has drained meanwhile would return what was there before, and their locks
// need a service of the server. Lustre, GPFS, BeeGFS and other parallel file systems keep the
// caches of the hosts alike.
#pragma once

namespace assay::storage {

// "NFS" or "SMB" if the file is on one; null: on another file system.
const char* incoherent_file_system(int fd);

}  // namespace assay::storage
