//! The user and the password for a server, as options.

use crate::output::problem;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

#[derive(clap::Args)]
pub struct LoginArgs {
    /// Password; safer in the environment variable
    #[arg(long, value_name = "PASSWORD", env = "INBLOOM_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    /// File whose first line is the password
    #[arg(long, value_name = "FILE", env = "INBLOOM_PASSWORD_FILE", conflicts_with = "password")]
    password_file: Option<PathBuf>,

    /// User of the password [default: the user 'default']
    #[arg(long, value_name = "NAME", env = "INBLOOM_USER")]
    user: Option<String>,
}

/// The user and password that are sent to a server first.
pub struct Login {
    /// None: the user `default`.
    pub user: Option<String>,
    pub password: String,
}

impl LoginArgs {
    /// None if no password is given.
    pub fn read(&self) -> Result<Option<Login>> {
        let password = match (&self.password, &self.password_file) {
            (Some(password), _) => Some(password.clone()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("--password-file {}", path.display()))?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
            (None, None) => None,
        };
        match (&self.user, password) {
            (Some(user), None) => {
                bail!(problem(
                    format!("--user {user} needs a password"),
                    "pass --password-file, or set INBLOOM_PASSWORD"
                ))
            }
            (user, password) => Ok(password.map(|password| Login { user: user.clone(), password })),
        }
    }
}
