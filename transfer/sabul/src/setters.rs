//! Builder methods of settings: one for each field, so that a new field breaks no caller.

/// Adds a method for each of these fields, which returns the settings with another value of the
/// field. An optional field also accepts a plain value.
macro_rules! setters {
    ($settings:ident { $($field:ident: $value:ty),+ $(,)? }) => {
        impl $settings {
            $(
                #[doc = concat!(
                    "Returns these settings with another value of ",
                    "[`", stringify!($field), "`](#structfield.", stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, $field: impl Into<$value>) -> Self {
                    self.$field = $field.into();
                    self
                }
            )+
        }
    };
}
