//! Signals of background workers.

use pgrx::pg_sys;

/// Lets SIGTERM end this background worker at its next interrupt check.
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn die_on_sigterm() {
    unsafe extern "C-unwind" {
        #[cfg(not(feature = "pg19"))]
        fn die(signal: core::ffi::c_int);
        #[cfg(feature = "pg19")]
        fn die(signal: core::ffi::c_int, info: *const pg_sys::pg_signal_info);
    }
    // SAFETY: installs the handler that backends use; the bindings only have a guarded wrapper of
    // it, which is not a C function.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
    }
}

/// Lets SIGTERM ask this background worker to end: see [`asked_to_end`].
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn ask_on_sigterm() {
    unsafe extern "C-unwind" {
        #[cfg(not(feature = "pg19"))]
        fn SignalHandlerForShutdownRequest(signal: core::ffi::c_int);
        #[cfg(feature = "pg19")]
        fn SignalHandlerForShutdownRequest(
            signal: core::ffi::c_int,
            info: *const pg_sys::pg_signal_info,
        );
    }
    // SAFETY: installs the server's handler, as in `die_on_sigterm`.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(SignalHandlerForShutdownRequest));
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(SignalHandlerForShutdownRequest));
    }
}

/// Whether SIGTERM has come.
pub fn asked_to_end() -> bool {
    // SAFETY: a flag set by the handler.
    unsafe { pg_sys::ShutdownRequestPending != 0 }
}

/// Lets SIGHUP be noticed: see [`reload_if_asked`].
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn reload_on_sighup() {
    unsafe extern "C-unwind" {
        #[cfg(not(feature = "pg19"))]
        fn SignalHandlerForConfigReload(signal: core::ffi::c_int);
        #[cfg(feature = "pg19")]
        fn SignalHandlerForConfigReload(
            signal: core::ffi::c_int,
            info: *const pg_sys::pg_signal_info,
        );
    }
    // SAFETY: installs the server's handler, as in `die_on_sigterm`.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        pg_sys::pqsignal_be(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::pqsignal(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
    }
}

/// Reads the configuration again if SIGHUP asked for it.
pub fn reload_if_asked() {
    // SAFETY: the flag is set by the handler; reading the file is allowed in a main loop.
    unsafe {
        if pg_sys::ConfigReloadPending != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}
