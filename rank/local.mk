# What a rank is.
