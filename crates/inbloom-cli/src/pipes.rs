//! Pipes that hold more than the 64 KiB they have by default.
//!
//! With 64 KiB the two ends of a pipe wake each other up for every 1,500 lines. With 1 MiB, the most
//! that Linux allows without privileges, they run side by side.

use std::os::fd::AsFd;

/// Lets a pipe hold 1 MiB, if the system allows it. Does nothing to a pipe that holds as much
/// already, nor to what is no pipe.
#[cfg(target_os = "linux")]
pub fn enlarge(pipe: impl AsFd) {
    use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

    const WANTED: usize = 1 << 20;
    if fcntl_getpipe_size(&pipe).is_ok_and(|size| size < WANTED) {
        // Refused where a user has many large pipes. It works with a small one too.
        let _ = fcntl_setpipe_size(&pipe, WANTED);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn enlarge(_pipe: impl AsFd) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

    use super::*;

    #[test]
    fn a_pipe_grows_and_never_shrinks() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        enlarge(&writer);
        let size = fcntl_getpipe_size(&reader).expect("it is a pipe");
        assert!(size == 1 << 20 || size <= 64 << 10, "{size}: enlarged, or refused by the system");
        if fcntl_setpipe_size(&reader, 4 << 20).is_ok() {
            enlarge(&reader);
            assert_eq!(fcntl_getpipe_size(&writer).expect("it is a pipe"), 4 << 20);
        }
        enlarge(std::fs::File::open("/dev/null").expect("it is there"));
    }
}
