# How ranks add and exchange: one file per transport.
